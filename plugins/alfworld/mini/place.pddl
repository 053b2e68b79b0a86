; put a keychain in sidetable.
; Two rooms' worth of furniture: the keychain lies in a closed drawer, a second one nowhere.
(define (problem mini_place)
(:domain alfred)
(:objects
    agent1 - agent
    KeyChain_bar_1 Book_bar_1 Pen_bar_1 Pen_bar_2 - object
    Drawer_bar_1 Drawer_bar_2 Bed_bar_1 SideTable_bar_1 - receptacle
    loc_bar_0 loc_bar_1 loc_bar_2 loc_bar_3 - location
    KeyChainType BookType PenType - otype
    DrawerType BedType SideTableType - rtype)
(:init
    (atLocation agent1 loc_bar_0)
    (receptacleAtLocation Drawer_bar_1 loc_bar_1) (receptacleType Drawer_bar_1 DrawerType) (openable Drawer_bar_1)
    (receptacleAtLocation Drawer_bar_2 loc_bar_1) (receptacleType Drawer_bar_2 DrawerType) (openable Drawer_bar_2)
    (receptacleAtLocation Bed_bar_1 loc_bar_2) (receptacleType Bed_bar_1 BedType)
    (receptacleAtLocation SideTable_bar_1 loc_bar_3) (receptacleType SideTable_bar_1 SideTableType)
    (objectType KeyChain_bar_1 KeyChainType) (pickupable KeyChain_bar_1)
    (objectType Book_bar_1 BookType) (pickupable Book_bar_1)
    (objectType Pen_bar_1 PenType) (pickupable Pen_bar_1)
    (objectType Pen_bar_2 PenType) (pickupable Pen_bar_2)
    (inReceptacle KeyChain_bar_1 Drawer_bar_2) (objectAtLocation KeyChain_bar_1 loc_bar_1)
    (inReceptacle Pen_bar_1 Drawer_bar_2) (objectAtLocation Pen_bar_1 loc_bar_1)
    (inReceptacle Book_bar_1 Bed_bar_1) (objectAtLocation Book_bar_1 loc_bar_2)
    (inReceptacle Pen_bar_2 SideTable_bar_1) (objectAtLocation Pen_bar_2 loc_bar_3)
    (canContain DrawerType KeyChainType) (canContain DrawerType PenType) (canContain DrawerType BookType)
    (canContain SideTableType KeyChainType) (canContain SideTableType PenType) (canContain SideTableType BookType)
    (canContain BedType BookType))
(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (inReceptacle ?o ?r) (objectType ?o KeyChainType) (receptacleType ?r SideTableType)))))))
