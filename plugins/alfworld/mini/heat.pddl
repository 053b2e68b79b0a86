; put a hot egg in diningtable.
; One egg is in the fridge and cold, the other in the closed microwave.
(define (problem mini_heat)
(:domain alfred)
(:objects
    agent1 - agent
    Egg_bar_1 Egg_bar_2 Apple_bar_1 - object
    Fridge_bar_1 Microwave_bar_1 DiningTable_bar_1 - receptacle
    loc_bar_0 loc_bar_1 loc_bar_2 loc_bar_3 - location
    EggType AppleType - otype
    FridgeType MicrowaveType DiningTableType - rtype)
(:init
    (atLocation agent1 loc_bar_0)
    (receptacleAtLocation Fridge_bar_1 loc_bar_1) (receptacleType Fridge_bar_1 FridgeType) (openable Fridge_bar_1)
    (receptacleAtLocation Microwave_bar_1 loc_bar_2) (receptacleType Microwave_bar_1 MicrowaveType)
    (openable Microwave_bar_1)
    (receptacleAtLocation DiningTable_bar_1 loc_bar_3) (receptacleType DiningTable_bar_1 DiningTableType)
    (objectType Egg_bar_1 EggType) (pickupable Egg_bar_1) (heatable Egg_bar_1) (coolable Egg_bar_1) (isCool Egg_bar_1)
    (objectType Egg_bar_2 EggType) (pickupable Egg_bar_2) (heatable Egg_bar_2) (coolable Egg_bar_2)
    (objectType Apple_bar_1 AppleType) (pickupable Apple_bar_1) (heatable Apple_bar_1) (coolable Apple_bar_1)
    (cleanable Apple_bar_1) (sliceable Apple_bar_1)
    (inReceptacle Egg_bar_1 Fridge_bar_1) (objectAtLocation Egg_bar_1 loc_bar_1)
    (inReceptacle Egg_bar_2 Microwave_bar_1) (objectAtLocation Egg_bar_2 loc_bar_2)
    (inReceptacle Apple_bar_1 DiningTable_bar_1) (objectAtLocation Apple_bar_1 loc_bar_3)
    (canContain FridgeType EggType) (canContain FridgeType AppleType)
    (canContain MicrowaveType EggType) (canContain MicrowaveType AppleType)
    (canContain DiningTableType EggType) (canContain DiningTableType AppleType))
(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (heatable ?o) (objectType ?o EggType) (receptacleType ?r DiningTableType) (isHot ?o)
         (inReceptacle ?o ?r)))))))
